"""Mutation: small changes of our sources at random places, each of which a test has to notice.

Cosmic Ray makes the changes, in a folder of their own; no file of the checkout is ever touched.
"""
