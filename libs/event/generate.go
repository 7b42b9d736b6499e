package event

//go:generate go run ./internal/contractgen/cmd ../../api
