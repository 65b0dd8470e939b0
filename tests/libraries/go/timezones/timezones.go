package timezones

import (
	"context"
	"fmt"
	"time"

	"hostler"
)

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		return err
	}
	if text := time.UnixMilli(1751364000000).In(berlin).Format(time.RFC3339); text != "2025-07-01T12:00:00+02:00" {
		return fmt.Errorf("got %s", text)
	}
	if year := time.Now().Year(); year < 2025 {
		return fmt.Errorf("the year is %d", year)
	}
	return nil
}
