// Libraries of vendors.
package main

import (
	"hostler"

	"example.com/libraries/github"
	"example.com/libraries/one"
	"example.com/libraries/s3"
	"example.com/libraries/slack"
	"example.com/libraries/stripe"
)

func main() {
	handlers := one.Handlers{
		"stripe": stripe.Handle,
		"s3":     s3.Handle,
		"slack":  slack.Handle,
		"github": github.Handle,
	}
	hostler.Handle(handlers.Handle)
}
