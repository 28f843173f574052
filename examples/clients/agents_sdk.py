import asyncio

from agents import Agent, Runner, function_tool, set_tracing_disabled


@function_tool
def find_order(order: int) -> str:
    """Look an order up."""
    return "3 lamps at 14 euros, 2 ordered"


@function_tool
def refund(order: int, euros: float) -> str:
    """Pay money back."""
    return f"{euros:g} euros of order {order} were paid back"


async def main() -> None:
    agent = Agent(name="complaints", model="shop", tools=[find_order, refund])
    complaint = "Orders 1042 and 1043 were billed with a lamp too many. Pay it back."
    run = await Runner.run(agent, complaint)
    print(run.final_output, run.context_wrapper.usage.total_tokens, "tokens")
    streamed = Runner.run_streamed(agent, complaint)
    print(
        [
            event.name
            async for event in streamed.stream_events()
            if event.type == "run_item_stream_event"
        ]
    )


set_tracing_disabled(True)  # or what is said here goes to OpenAI
asyncio.run(main())
