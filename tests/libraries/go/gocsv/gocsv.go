package gocsv

import (
	"context"
	"fmt"

	"github.com/gocarina/gocsv"

	"hostler"
)

type Row struct {
	Name  string `csv:"name"`
	Cents int    `csv:"cents"`
}

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	var rows []Row
	err := gocsv.UnmarshalString("cents,name\n7,Ada\n8,\"Hopper, Grace\"\n", &rows)
	if err == nil && rows[1] != (Row{"Hopper, Grace", 8}) {
		err = fmt.Errorf("got %v", rows)
	}
	return err
}
