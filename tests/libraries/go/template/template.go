package template

import (
	"bytes"
	"context"
	"fmt"
	"html/template"

	"hostler"
)

var page = template.Must(template.New("page").Parse(`<p>{{.Name}}: {{range .Items}}{{.}};{{end}}</p>`))

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	var out bytes.Buffer
	err := page.Execute(&out, map[string]any{"Name": "<Ada>", "Items": []int{1, 2}})
	if err == nil && out.String() != "<p>&lt;Ada&gt;: 1;2;</p>" {
		err = fmt.Errorf("got %s", &out)
	}
	return err
}
