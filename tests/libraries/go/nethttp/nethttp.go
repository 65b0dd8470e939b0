package nethttp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"hostler"
)

// Handle sends a request of a goroutine, and one by a transport of the program's own.
func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	own := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	var group sync.WaitGroup
	failures := make(chan error, 2)
	for n, client := range []*http.Client{http.DefaultClient, own} {
		group.Go(func() { failures <- get(client, fmt.Sprintf("%s/get?n=%d", hostler.Config("api"), n)) })
	}
	group.Wait()
	return firstOf(<-failures, <-failures)
}

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func get(client *http.Client, url string) error {
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct{ OK bool }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || !answer.OK {
		return fmt.Errorf("got %v, %v", answer, err)
	}
	return nil
}
