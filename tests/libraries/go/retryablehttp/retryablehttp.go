package retryablehttp

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"hostler"
)

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	client := retryablehttp.NewClient()
	client.RetryWaitMin = 10 * time.Millisecond
	response, err := client.Get(hostler.Config("api") + "/busy-once")
	if err == nil && response.StatusCode != 200 {
		err = fmt.Errorf("got %s", response.Status)
	}
	return err
}
