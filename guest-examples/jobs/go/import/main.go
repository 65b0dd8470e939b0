// Reads customers from a CSV file: one message for each, and a count.
package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"net/mail"

	"hostler"
	"hostler/kv"
)

type Customer struct {
	Name string `json:"name"`
	Mail string `json:"mail"`
}

func main() { hostler.Handle(load) }

func load(ctx context.Context, m hostler.Message, file []byte) error {
	rows, err := csv.NewReader(bytes.NewReader(file)).ReadAll()
	if err != nil || len(rows) == 0 || len(rows[0]) != 2 {
		return hostler.Dropf("not a file of names and mails: %v", err)
	}
	for n, row := range rows[1:] {
		if _, err := mail.ParseAddress(row[1]); err != nil {
			return hostler.Dropf("row %d: %q: %v", n+2, row[1], err)
		}
		if err := hostler.Publish("customers", Customer{row[0], row[1]}); err != nil {
			return err
		}
	}
	return kv.Set("rows:"+m.Headers["file"], len(rows)-1)
}
