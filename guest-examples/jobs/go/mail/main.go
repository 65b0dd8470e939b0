// Sends a mail that a template makes, by Resend's own library.
package main

import (
	"context"
	"html/template"
	"strings"
	"time"

	"github.com/resend/resend-go/v3"

	"hostler"
)

type Shipment struct {
	Name, Mail, Parcel string
	Items              []string
}

// The rule of [[grant.http]] sets the credential in the place of this one.
var client = resend.NewClient("set by hostler")

var page = template.Must(template.New("").Parse(`<p>{{.Name}}, {{.Parcel}} has:</p>{{range .Items}}<li>{{.}}{{end}}`))

func main() { hostler.Handle(send) }

func send(ctx context.Context, m hostler.Message, s Shipment) error {
	var html strings.Builder
	if err := page.Execute(&html, s); err != nil {
		return err
	}
	_, err := client.Emails.SendWithContext(ctx, &resend.SendEmailRequest{
		From: "Parcels <parcels@example.com>", To: []string{s.Mail}, Subject: "On its way", Html: html.String()})
	if limit, ok := hostler.AsType[*resend.RateLimitError](err); ok {
		delay, _ := time.ParseDuration(limit.RetryAfter + "s")
		return hostler.RetryAfter(delay)
	}
	return err
}
