// gosec over the whole workspace in one process, for `make gosec`. It has a module of its own, because golangci-lint, which has gosec
// too, takes longer to build than all of this takes. The version is that of tools/go.mod.
module github.com/kyma-project/keb/tools/gosec

go 1.26.0

require (
	github.com/securego/gosec/v2 v2.29.0
	github.com/stretchr/testify v1.12.1
	go.yaml.in/yaml/v3 v3.0.5
	golang.org/x/sync v0.24.0
	golang.org/x/tools v0.52.0
)

require (
	github.com/ccojocar/zxcvbn-go v1.0.4 // indirect
	golang.org/x/mod v0.42.0 // indirect
)
