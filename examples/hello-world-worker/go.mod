module github.com/kyma-project/keb/examples/hello-world-worker

go 1.26.0

replace github.com/kyma-project/keb/libs => ../../libs
