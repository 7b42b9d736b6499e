package worker

import "time"

// SetAckWait shortens the time after which the bus delivers a command again.
func SetAckWait(w *Worker, d time.Duration) { w.spec.AckWait = d }
