package resty

import (
	"context"
	"fmt"

	"github.com/go-resty/resty/v2"

	"hostler"
)

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	var answer struct{ OK bool }
	request := resty.New().R().SetContext(ctx).SetBody(map[string]int{"cents": 7}).SetResult(&answer)
	response, err := request.Post(hostler.Config("api") + "/post")
	if err == nil && !answer.OK {
		err = fmt.Errorf("got %s", response)
	}
	return err
}
