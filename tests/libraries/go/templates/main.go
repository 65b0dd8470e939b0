// Libraries for templates. With them Go keeps all methods, so they have a component of their own.
package main

import (
	"hostler"

	"example.com/libraries/one"
	"example.com/libraries/pongo2"
	"example.com/libraries/template"
)

func main() {
	handlers := one.Handlers{
		"template": template.Handle,
		"pongo2":   pongo2.Handle,
	}
	hostler.Handle(handlers.Handle)
}
