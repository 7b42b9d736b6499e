module github.com/kyma-project/keb/libs/osb/osbtest

go 1.26.0

require (
	github.com/Masterminds/semver/v3 v3.5.0
	github.com/google/go-cmp v0.7.0
	github.com/kyma-project/keb/libs v0.0.0-00010101000000-000000000000
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
)

require golang.org/x/text v0.43.0 // indirect

replace github.com/kyma-project/keb/libs => ../..
