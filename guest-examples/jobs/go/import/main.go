// Reads customers from a CSV file: one message for each, and a count.
package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"net/mail"
	"strconv"

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
	if err != nil {
		return hostler.Drop(err.Error())
	}
	for n, row := range rows[min(1, len(rows)):] {
		if _, err := mail.ParseAddress(row[1]); err != nil {
			return hostler.Drop(fmt.Sprintf("row %d: %q: %v", n+2, row[1], err))
		}
		if err := hostler.Publish("customers", Customer{row[0], row[1]}); err != nil {
			return err
		}
	}
	return kv.Set("rows:"+m.Headers["file"], []byte(strconv.Itoa(max(len(rows)-1, 0))))
}
