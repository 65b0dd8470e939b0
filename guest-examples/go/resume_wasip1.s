// The linker provides the functions of resume_wasip1.go. Without a file like this one, Go wants their bodies.
