module example.com/orders-handler

go 1.25
