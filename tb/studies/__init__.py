"""What `meshloom bench` measures: a folder for each subject, a file for each study, and the engine of all of them."""
