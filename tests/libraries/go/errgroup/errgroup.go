package errgroup

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"hostler"
)

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	group, ctx := errgroup.WithContext(ctx)
	sum := make(chan int, 3)
	for n := range 3 {
		group.Go(func() error {
			select {
			case <-time.After(time.Duration(n) * 10 * time.Millisecond):
				sum <- n
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if got := <-sum + <-sum + <-sum; got != 3 {
		return fmt.Errorf("got %d", got)
	}
	return nil
}
