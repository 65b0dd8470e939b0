module example.com/orders-program

go 1.25

require example.com/orders-handler v0.0.0

replace example.com/orders-handler => ../../../guest-examples/go
