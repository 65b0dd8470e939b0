package requests

import (
	"context"
	"errors"

	"github.com/carlmjohnson/requests"

	"hostler"
)

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	var answer struct{ OK bool }
	err := requests.URL(hostler.Config("api")).Path("/get").ToJSON(&answer).Fetch(ctx)
	if err == nil && !answer.OK {
		err = errors.New("not ok")
	}
	return err
}
