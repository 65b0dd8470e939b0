package pongo2

import (
	"context"
	"fmt"

	"github.com/flosch/pongo2/v6"

	"hostler"
)

var page = pongo2.Must(pongo2.FromString("Hello {{ name|upper }}"))

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	out, err := page.Execute(pongo2.Context{"name": "Ada"})
	if err == nil && out != "Hello ADA" {
		err = fmt.Errorf("got %s", out)
	}
	return err
}
