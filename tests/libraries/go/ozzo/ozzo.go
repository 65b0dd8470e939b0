package ozzo

import (
	"context"
	"errors"

	validation "github.com/go-ozzo/ozzo-validation/v4"
	"github.com/go-ozzo/ozzo-validation/v4/is"

	"hostler"
)

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	if validation.Validate("ada", is.EmailFormat) == nil {
		return errors.New("accepted a bad address")
	}
	return validation.Validate("ada@example.com", validation.Required, is.EmailFormat)
}
