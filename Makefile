.PHONY: proto
proto: ## stubs from proto/sluicegate/v1/lifecycle.proto
	.venv/bin/python -m grpc_tools.protoc --proto_path=proto --python_out=proto --grpc_python_out=proto --mypy_out=proto --mypy_grpc_out=proto sluicegate/v1/lifecycle.proto --plugin=protoc-gen-mypy=.venv/bin/protoc-gen-mypy --plugin=protoc-gen-mypy_grpc=.venv/bin/protoc-gen-mypy_grpc
