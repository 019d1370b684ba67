// A server with rmcp (`peer stdio`, `peer PORT`), and a client of `everturn mcp` (`peer client ADDRESS`, or a command).
use std::{error::Error, sync::Arc};

use rmcp::{
    RoleClient, ServerHandler, ServiceExt,
    handler::server::wrapper::{Json, Parameters},
    model::{CallToolRequestParams, CallToolResult, ContentBlock},
    schemars::{self, JsonSchema},
    service::RunningService,
    tool, tool_handler, tool_router,
    transport::{
        StreamableHttpClientTransport, TokioChildProcess, stdio,
        streamable_http_server::{StreamableHttpService, session::local::LocalSessionManager},
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{net::TcpListener, process::Command};

type Failure = Box<dyn Error + Send + Sync>;

#[derive(Deserialize, JsonSchema)]
struct Payment {
    cents: i64,
}

#[derive(Serialize, JsonSchema)]
struct Count {
    lamps: i64,
}

#[derive(Clone)]
struct Peer;

#[tool_router]
impl Peer {
    #[tool(description = "Pays.")]
    fn pay(&self, Parameters(Payment { cents }): Parameters<Payment>) -> String {
        format!("paid {cents}")
    }

    #[tool(description = "Counts lamps.")]
    fn count(&self) -> Json<Count> {
        Json(Count { lamps: 3 })
    }

    #[tool(description = "Gives nothing.")]
    fn nothing(&self) {}

    #[tool(description = "Gives a picture.")]
    fn picture(&self) -> CallToolResult {
        CallToolResult::success(vec![ContentBlock::image("aGVsbG8=", "image/png")])
    }

    #[tool(description = "Fails.")]
    fn boom(&self) -> Result<String, String> {
        Err("boom".into())
    }
}

#[tool_handler]
impl ServerHandler for Peer {}

async fn connected(place: &[String]) -> Result<RunningService<RoleClient, ()>, Failure> {
    if place[0].starts_with("http") {
        return Ok(().serve(StreamableHttpClientTransport::from_uri(place[0].clone())).await?);
    }
    let mut command = Command::new(&place[0]);
    command.args(&place[1..]);
    Ok(().serve(TokioChildProcess::new(command)?).await?)
}

async fn structured(
    client: &RunningService<RoleClient, ()>,
    tool: &'static str,
    arguments: Value,
) -> Result<Value, Failure> {
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    let result = client.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments)).await?;
    Ok(result.structured_content.unwrap_or(Value::Null))
}

async fn client(place: &[String]) -> Result<(), Failure> {
    let client = connected(place).await?;
    let server = client.peer_info().and_then(|info| info.server_info.clone());
    let tools = client.list_all_tools().await?;
    let start = json!({"agent": "clerk", "message": "Hi", "conversation_id": "a"});
    let seen = json!({
        "version": server.map(|server| server.version),
        "tools": tools.iter().map(|tool| tool.name.as_ref()).collect::<Vec<_>>(),
        "result": structured(&client, "clerk", json!({"message": "Hi"})).await?,
        "begun": structured(&client, "start", start).await?,
    });
    println!("{seen}");
    client.cancel().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments[0].as_str() {
        "client" => client(&arguments[1..]).await?,
        "stdio" => drop(Peer.serve(stdio()).await?.waiting().await?),
        port => {
            let sessions = Arc::new(LocalSessionManager::default());
            let service = StreamableHttpService::new(|| Ok(Peer), sessions, Default::default());
            let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
            axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
        }
    }
    Ok(())
}
