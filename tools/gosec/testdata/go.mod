module flawed

go 1.26.0
