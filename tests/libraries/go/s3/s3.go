package s3

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"hostler"
)

func Handle(ctx context.Context, m hostler.Message, _ []byte) error {
	client := s3.New(s3.Options{
		Region:       "eu-central-1",
		BaseEndpoint: aws.String(hostler.Config("api")),
		UsePathStyle: true,
		Credentials:  credentials.NewStaticCredentialsProvider("id", "key", ""),
	})
	_, err := client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: aws.String("invoices"), Key: aws.String("o-1"), Body: strings.NewReader("an invoice")})
	return err
}
