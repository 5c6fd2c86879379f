"""What is kept between runs, and what it is named after."""
