module github.com/kyma-project/keb/landscape

go 1.26.0

require (
	github.com/caarlos0/env/v11 v11.4.2
	github.com/google/go-cmp v0.7.0
	github.com/google/uuid v1.6.0
	github.com/vektah/gqlparser/v2 v2.5.64
	go.uber.org/goleak v1.3.0
)

require (
	github.com/agnivade/levenshtein v1.2.2 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	k8s.io/apimachinery v0.37.0 // indirect
	k8s.io/client-go v0.37.0 // indirect
)

replace github.com/kyma-project/keb/libs => ../libs
