module example.com/orders-handler

go 1.25

require hostler v0.0.0

require go.bytecodealliance.org/pkg v0.2.1 // indirect

replace hostler => ./hostler
