module github.com/kyma-project/keb/test

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/google/uuid v1.6.0
	go.uber.org/goleak v1.3.0
)

replace github.com/kyma-project/keb/libs => ../libs

replace github.com/kyma-project/keb/services/broker => ../services/broker

replace github.com/kyma-project/keb/services/orchestrator => ../services/orchestrator

replace github.com/kyma-project/keb/services/step-workers => ../services/step-workers

replace github.com/kyma-project/keb/landscape => ../landscape
