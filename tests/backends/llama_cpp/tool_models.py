"""Short chat templates in the styles that models with tools come with, and a tool."""

from pydantic import BaseModel, Field

HERMES_WORD, LLAMA_WORD = "<tool_call>", '{"name": "Weather"'
"""What begins a call to ``Weather``: tokens 259 and 260 of the model at ``tools_path``."""


class Weather(BaseModel):
    """The weather at a place."""

    city: str = Field(max_length=6, description="where")
    days: int = Field(ge=1, le=9)


HERMES = """
{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}

{% endif %}Call functions within <tool_call></tool_call>, as in
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>
<tools>
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}</tools><|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'user' %}<|im_start|>user
{{ message.content }}<|im_end|>
{% elif message.role == 'assistant' %}<|im_start|>assistant
{{ message.content }}
{%- for call in message.tool_calls %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% elif message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

LLAMA = """
{%- for message in messages %}
{%- if message.role == 'tool' %}[ipython]{{ message.content }}
{% elif 'tool_calls' in message %}
{%- if message.tool_calls | length != 1 %}{{ raise_exception('one call at a time') }}{% endif %}
{%- set call = message.tool_calls[0].function %}
{{- '[assistant]' }}{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}
{% else %}[{{ message.role }}]{{ message.content }}
{% if loop.first and tools %}Answer with {"name": function name, "parameters": dictionary of arguments}.
{% for tool in tools %}{{ tool | tojson(indent=4) }}
{% endfor %}{% endif %}
{%- endif %}
{%- endfor %}[assistant]"""

NO_SYSTEM = """
{%- for message in messages %}
{%- if message.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}
{{- '[' + message.role + ']' + message.content }}
{% endfor %}[assistant]"""
"""As Gemma's: knows neither tools nor system messages."""
