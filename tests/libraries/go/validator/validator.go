package validator

import (
	"context"
	"errors"

	"github.com/go-playground/validator/v10"

	"hostler"
)

type Order struct {
	ID    string `validate:"required"`
	Mail  string `validate:"email"`
	Cents int    `validate:"gt=0"`
}

var validate = validator.New()

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	err := validate.Struct(Order{"o-1", "ada", 7})
	var failed validator.ValidationErrors
	if !errors.As(err, &failed) || failed[0].Field() != "Mail" {
		return errors.New("accepted a bad address")
	}
	return validate.Struct(Order{"o-1", "ada@example.com", 7})
}
