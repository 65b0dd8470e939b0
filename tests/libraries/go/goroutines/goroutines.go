// Package goroutines has handlers that return while goroutines of theirs are not finished.
package goroutines

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"hostler"
)

// Handle does what the body says.
func Handle(ctx context.Context, m hostler.Message, body []byte) error {
	switch string(body) {
	case "works":
		for n := range 3 {
			go func() {
				time.Sleep(time.Duration(n) * 20 * time.Millisecond)
				fmt.Println("charged", n)
			}()
		}
	case "request":
		go func() {
			request, _ := http.NewRequestWithContext(ctx, "POST", "https://payments.example.com/charges", nil)
			_, err := http.DefaultClient.Do(request)
			fmt.Println("charged", err)
		}()
	case "watcher":
		go func() {
			<-ctx.Done()
			fmt.Println("the context ended")
		}()
	case "stuck":
		go func() { <-make(chan int) }()
	case "ticker":
		go func() {
			for range time.Tick(time.Hour) {
				fmt.Println("tick")
			}
		}()
	case "panic":
		go func() { panic("a goroutine hit a bug") }()
	case "drop":
		go func() { <-make(chan int) }()
		return hostler.Drop("declined")
	case "stuck-error":
		go func() { <-make(chan int) }()
		return errors.New("sold out")
	case "error":
		go func() {
			<-ctx.Done()
			fmt.Println("the context ended")
		}()
		return errors.New("sold out")
	case "blocked":
		<-make(chan int)
	}
	return nil
}
