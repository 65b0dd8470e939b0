package slack

import (
	"context"

	"github.com/slack-go/slack"

	"hostler"
)

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	client := slack.New("xoxb", slack.OptionAPIURL(hostler.Config("api")+"/slack/"))
	_, _, err := client.PostMessageContext(ctx, "#orders", slack.MsgOptionText("a new order", false))
	return err
}
