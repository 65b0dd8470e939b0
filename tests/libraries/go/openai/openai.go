package openai

import (
	"context"
	"fmt"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"hostler"
)

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	client := openai.NewClient(option.WithAPIKey("k"), option.WithBaseURL(hostler.Config("api")+"/v1"))
	answer, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model:    "gpt-5-mini",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")},
	})
	if err == nil && answer.Choices[0].Message.Content != "hi" {
		err = fmt.Errorf("got %v", answer.Choices)
	}
	return err
}
