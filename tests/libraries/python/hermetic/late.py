WORD = "of the project"
