// The library of OpenAI: some 50 MB of code, so a component of its own.
package main

import (
	"hostler"

	"example.com/libraries/one"
	"example.com/libraries/openai"
)

func main() { hostler.Handle(one.Handlers{"openai": openai.Handle}.Handle) }
