// Command greeter is the external service that the step Hello_World calls. Stop it to see the step retry.
package main

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/kyma-project/keb/libs/service"
)

const addr = "127.0.0.1:8099"

func main() {
	service.Main("greeter", func(ctx context.Context, log *slog.Logger) error {
		ln, err := service.Listen(addr)
		if err != nil {
			return err
		}
		log.Info("greeting", "url", "http://"+addr+"/")
		return service.ServeHTTP(ctx, ln, http.HandlerFunc(greet))
	})
}

func greet(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"data":"hello world","token":"a-token-for-the-cluster"}`)) // the client may have disconnected
}
