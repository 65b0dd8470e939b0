module example.com/jobs

go 1.25

require (
	github.com/resend/resend-go/v3 v3.1.1
	github.com/stripe/stripe-go/v84 v84.4.1
	hostler v0.0.0
)

require go.bytecodealliance.org/pkg v0.2.1 // indirect

replace hostler => ../../sdk/go/hostler
