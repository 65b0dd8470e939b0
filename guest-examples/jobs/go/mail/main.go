// Sends a mail that a template makes, by Resend's own library.
package main

import (
	"bytes"
	"context"
	"errors"
	"html/template"
	"net/http"
	"strconv"
	"time"

	"github.com/resend/resend-go/v3"

	"hostler"
)

type Shipment struct {
	Name, Mail, Parcel string
	Items              []string
}

var page = template.Must(template.New("mail").Parse(
	`<p>Hello {{.Name}},</p><p>parcel {{.Parcel}} has {{range $i, $item := .Items}}{{if $i}}, {{end}}{{$item}}{{end}}.</p>`))

func main() { hostler.Handle(send) }

func send(ctx context.Context, m hostler.Message, s Shipment) error {
	var text bytes.Buffer
	if err := page.Execute(&text, s); err != nil {
		return err
	}
	// The rule of [[grant.http]] sets the credential in the place of this one.
	client := resend.NewCustomClient(http.DefaultClient, "set by hostler")
	mail := &resend.SendEmailRequest{
		From: "Parcels <parcels@example.com>", To: []string{s.Mail}, Subject: "On its way", Html: text.String()}
	_, err := client.Emails.SendWithContext(ctx, mail)
	var limit *resend.RateLimitError
	if errors.As(err, &limit) {
		seconds, _ := strconv.Atoi(limit.RetryAfter)
		return hostler.RetryAfter(time.Duration(seconds) * time.Second)
	}
	return err
}
