//! The attribute of the crate `hostler-handler`.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::{Error, FnArg, ItemFn, Type, parse_macro_input};

/// Make a function the handler of the component.
///
/// Its first parameter is the payload: a type that `serde` reads from JSON, or `Vec<u8>`, which is the body as it
/// is. A second one, if there is one, is the message: `Message` or `&Message`. It returns `Result<(), Error>`, and
/// may be `async` with the feature `async`.
#[proc_macro_attribute]
pub fn handler(_: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as ItemFn);
    expand(&function)
        .unwrap_or_else(|error| {
            let error = error.to_compile_error();
            quote!(#function #error)
        })
        .into()
}

fn expand(function: &ItemFn) -> syn::Result<Tokens> {
    let name = &function.sig.ident;
    let mut parameters = Vec::new();
    for parameter in &function.sig.inputs {
        match parameter {
            FnArg::Typed(typed) => parameters.push(&*typed.ty),
            FnArg::Receiver(receiver) => {
                return Err(Error::new_spanned(receiver, "a handler is no method"));
            }
        }
    }
    let (payload, message) = match *parameters.as_slice() {
        [payload] => (payload, None),
        [payload, message] => (payload, Some(message)),
        _ => {
            let why = "a handler has one parameter, the payload, or two: the payload and the message";
            return Err(Error::new_spanned(&function.sig.inputs, why));
        }
    };
    let read = match quote!(#payload).to_string().as_str() {
        "Vec < u8 >" => quote!(let payload = ::core::clone::Clone::clone(&message.body);),
        _ => quote!(let payload: #payload = ::hostler_handler::__private::read(&message)?;),
    };
    let argument = match message {
        None => quote!(),
        Some(Type::Reference(_)) => quote!(, &message),
        Some(_) => quote!(, message),
    };
    let call = match function.sig.asyncness {
        None => quote!(#name(payload #argument)),
        Some(_) if cfg!(feature = "async") => quote!({
            ::hostler_handler::__private::run(async move { #name(payload #argument).await })
        }),
        Some(asyncness) => {
            let why = "an async handler needs the feature `async` of hostler-handler";
            return Err(Error::new_spanned(asyncness, why));
        }
    };
    Ok(quote! {
        #function

        const _: () = {
            struct Handler;

            impl ::hostler_handler::__private::Guest for Handler {
                fn handle(
                    message: ::hostler_handler::__private::Incoming,
                ) -> ::hostler_handler::__private::Outcome {
                    ::hostler_handler::__private::answer(message, |message| {
                        #read
                        ::core::result::Result::map_err(#call, ::core::convert::Into::into)
                    })
                }
            }

            ::hostler_handler::__export!(Handler with_types_in ::hostler_handler::__private::bindings);
        };
    })
}
