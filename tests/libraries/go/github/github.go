package github

import (
	"context"
	"fmt"

	"github.com/google/go-github/v83/github"

	"hostler"
)

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	client, err := github.NewClient(nil).WithAuthToken("t").WithEnterpriseURLs(hostler.Config("api"), hostler.Config("api"))
	if err != nil {
		return err
	}
	issue, _, err := client.Issues.Create(ctx, "shop", "orders", &github.IssueRequest{Title: github.Ptr("late")})
	if err == nil && issue.GetNumber() != 7 {
		err = fmt.Errorf("got %v", issue)
	}
	return err
}
