// More libraries.
package main

import (
	"hostler"

	"example.com/libraries/dateparse"
	"example.com/libraries/decimal"
	"example.com/libraries/errgroup"
	"example.com/libraries/gocsv"
	"example.com/libraries/jwt"
	"example.com/libraries/one"
	"example.com/libraries/ozzo"
	"example.com/libraries/pgx"
	"example.com/libraries/requests"
	"example.com/libraries/resty"
	"example.com/libraries/retryablehttp"
	"example.com/libraries/ulid"
	"example.com/libraries/validator"
	"example.com/libraries/yaml"
	"example.com/libraries/zap"
	"example.com/libraries/zerolog"
)

func main() {
	handlers := one.Handlers{
		"resty":         resty.Handle,
		"retryablehttp": retryablehttp.Handle,
		"requests":      requests.Handle,
		"validator":     validator.Handle,
		"ozzo":          ozzo.Handle,
		"dateparse":     dateparse.Handle,
		"gocsv":         gocsv.Handle,
		"yaml":          yaml.Handle,
		"jwt":           jwt.Handle,
		"ulid":          ulid.Handle,
		"zap":           zap.Handle,
		"zerolog":       zerolog.Handle,
		"errgroup":      errgroup.Handle,
		"decimal":       decimal.Handle,
		"pgx":           pgx.Handle,
	}
	hostler.Handle(handlers.Handle)
}
