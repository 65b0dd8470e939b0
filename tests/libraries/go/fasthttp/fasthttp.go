package fasthttp

import (
	"context"

	"github.com/valyala/fasthttp"

	"hostler"
)

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	_, _, err := fasthttp.Get(nil, hostler.Config("api")+"/get")
	return err
}
