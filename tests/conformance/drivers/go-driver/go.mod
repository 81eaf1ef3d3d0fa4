module stele/conformance/driver

go 1.24
