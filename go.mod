module vestibule

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	go.yaml.in/yaml/v3 v3.0.6
	golang.org/x/text v0.43.0
	pgregory.net/rapid v1.3.0
)

require google.golang.org/protobuf v1.36.12 // indirect
