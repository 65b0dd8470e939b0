package jwt

import (
	"context"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"hostler"
)

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	key := []byte("a key")
	claims := jwt.MapClaims{"sub": "ada", "exp": time.Now().Add(time.Minute).Unix()}
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(key)
	if err != nil {
		return err
	}
	token, err := jwt.Parse(text, func(*jwt.Token) (any, error) { return key, nil })
	if subject, _ := token.Claims.GetSubject(); err == nil && subject != "ada" {
		err = fmt.Errorf("got %v", subject)
	}
	return err
}
