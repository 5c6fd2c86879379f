"""What reads files of users, tried with inputs that Atheris finds: damaged, hostile, something else.

`readers`: all that is read, and what counts as one clear error; `target`: one of them under Atheris; `__main__`: the
campaign, which is `make parsers`.
"""
