package yaml

import (
	"context"
	"fmt"

	"gopkg.in/yaml.v3"

	"hostler"
)

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	var order struct {
		ID    string
		Items []string
	}
	err := yaml.Unmarshal([]byte("id: o-1\nitems: [tea, cup]\n"), &order)
	if err == nil && order.Items[1] != "cup" {
		err = fmt.Errorf("got %v", order)
	}
	return err
}
